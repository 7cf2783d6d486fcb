# Disk.pm: fills the file system of a folder, and frees it again.

package Disk;

use strict;
use warnings;

sub new
{
	my ($class, $dir) = @_;
	return bless { ballast => "$dir/ballast" }, $class;
}

# To the last block.
sub fill
{
	my ($self) = @_;

	open my $file, '>', $self->{ballast} or die "$self->{ballast}: $!\n";
	foreach my $size (1 << 20, 1 << 12)
	{
		my $block = "\0" x $size;
		1 while (syswrite($file, $block) // 0) == $size;
	}
	close $file;
	return;
}

sub free { return unlink $_[0]->{ballast}; }

1;

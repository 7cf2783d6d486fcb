# Documented.pm: the option sets of doc/receivers.md, as somebody would copy them.
#
#	my @blocks = Documented::blocks($page, 'nginx in front', 'sql');	# below that heading

package Documented;

use strict;
use warnings;

# Texts of the blocks with the word LANGUAGE at their fence below HEADING, up to the next
# heading.
sub blocks
{
	my ($page, $heading, $language) = @_;
	my @blocks;
	my ($section, $block) = ('');

	open my $file, '<', $page or die "$page: $!\n";
	while (<$file>)
	{
		if (/^```(\w*)/)
		{
			push @blocks, $block->{text} if $block && $section eq $heading && $block->{language} eq $language;
			$block = $block ? undef : { language => $1, text => '' };
		}
		elsif ($block) { $block->{text} .= $_; }
		elsif (/^#+ (.*?)\s*$/) { $section = $1; }
	}
	die "$page: there is no block \"$language\" below \"$heading\"\n" unless @blocks;
	return @blocks;
}

1;

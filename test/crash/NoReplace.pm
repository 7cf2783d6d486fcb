# NoReplace.pm: a process, and what it starts, for which the kernel has no
# renameat2(), as on file systems that cannot rename without replacing: a filter of
# system calls (seccomp(2)) that answers ENOSYS.
#
#	exec ... if NoReplace::take_away();			# undef, with $!, where that cannot be

package NoReplace;

use strict;
use warnings;

use Errno qw(ENOSYS);
use POSIX ();

# <asm/unistd.h>: prctl, renameat2
my %calls = (x86_64 => [ 157, 316 ], aarch64 => [ 167, 276 ]);

# <linux/prctl.h>, <linux/filter.h>, <linux/seccomp.h>
my ($PR_SET_NO_NEW_PRIVS, $PR_SET_SECCOMP, $SECCOMP_MODE_FILTER) = (38, 22, 2);
my ($LOAD, $JUMP_IF_EQUAL, $RETURN) = (0x20, 0x15, 0x06);
my ($ALLOW, $FAIL_WITH) = (0x7fff0000, 0x00050000);

sub take_away
{
	my ($prctl, $renameat2) = @{ $calls{ (POSIX::uname())[4] } // return undef };
	my $filter = join '', map { pack 'S C C L', @$_ } (
		[ $LOAD, 0, 0, 0 ],						# the number of the call
		[ $JUMP_IF_EQUAL, 0, 1, $renameat2 ],
		[ $RETURN, 0, 0, $FAIL_WITH | ENOSYS ],
		[ $RETURN, 0, 0, $ALLOW ]);
	my $program = pack 'S x![P] P', 4, $filter;

	return syscall($prctl, $PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
	  && syscall($prctl, $PR_SET_SECCOMP, $SECCOMP_MODE_FILTER, $program) == 0 ? 1 : undef;
}

1;

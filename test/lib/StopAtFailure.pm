# StopAtFailure.pm: perl -MStopAtFailure FILE ends a TAP test at its first failed
# assertion.  What ends with the test ends as ever: its servers, its collectors.

package StopAtFailure;

use strict;
use warnings;

use Test2::API qw(test2_add_callback_context_release);

test2_add_callback_context_release(
	sub {
		my ($context) = @_;
		my $hub = $context->hub;

		# Not inside of a subtest, nor of what has ended.
		return if $hub->is_passing || $hub->nested || $hub->ended;
		$context->bail('stopped at the first failure');
	});

1;

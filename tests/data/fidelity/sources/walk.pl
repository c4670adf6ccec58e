use strict;
use warnings;

# Walks over lines (and counts what's there).
my %count;
while (my $line = <STDIN>) {
    chomp $line;
    next if $line =~ m/^\s*#|[)\]]/;
    foreach my $word (split /\s+/, $line) {
        $count{lc $word}++;
    }
}

sub most {
    my ($limit, @names) = @_;
    my @sorted = sort { $count{$b} <=> $count{$a} } @names;
    return @sorted[0 .. ($limit < @sorted ? $limit : scalar @sorted) - 1];
}

print join(', ', most(3, keys %count)), "\n";

"""What a dispatcher keeps on the disk: its journal, its bags, their inputs and results."""

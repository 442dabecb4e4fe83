"""Real runs among faults: managers stopped, continued, killed and doubled, shells killed, disks
filling."""

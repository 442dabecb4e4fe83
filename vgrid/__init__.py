"""Virtual grid: available slots with start time, probability and cost. A common form for batch
queues and clouds."""

"""Plans of workflow sets: made, carried out, resumed, explained; run times that they rest on."""

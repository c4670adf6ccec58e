"""From settings to an engine: the options, the plan of memory, and the one place that wires everything together."""

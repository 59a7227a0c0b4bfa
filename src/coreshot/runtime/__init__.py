"""Who runs a method: the simulation loop, executors, worker processes, checkpoints."""

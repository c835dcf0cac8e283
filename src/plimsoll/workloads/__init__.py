"""Who runs where: priorities, admission, placement, preemption, repair of gangs, why."""

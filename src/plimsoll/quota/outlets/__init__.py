"""How schedulers are told what is guaranteed: what to set (pure), and what differs from what they have."""

"""How the nodes of a batch are marked in their schedulers."""

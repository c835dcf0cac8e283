"""What exists: areas, clusters, islands, nodes, SKUs; import, export, the demo fleet."""

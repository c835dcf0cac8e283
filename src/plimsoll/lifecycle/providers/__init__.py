"""Who carries out the steps of a cluster's life: local commands, Buildkite, Azure."""

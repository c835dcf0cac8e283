"""A plan that is carried out: the gate, the steps of a batch, what people say, how it stands."""

"""The outside, one module each. These clients know no capability: they speak to the thing and return plain nouns."""

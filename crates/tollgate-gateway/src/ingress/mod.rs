//! Stage 1 of 9. In: an HTTP request; out: what it asks for, or a refusal of its path.

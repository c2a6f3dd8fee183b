//! Stage 2 of 9. In: a head; out: the caller, or a refusal of the key.

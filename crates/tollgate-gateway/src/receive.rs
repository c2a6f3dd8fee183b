//! Stage 2 of 9, second half. In: a known caller's body on the wire; out: its bytes.

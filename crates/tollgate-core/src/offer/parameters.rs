//! Which fields a model takes, whatever protocol they are spelled in.

//! Constructs large values in place. `Box::new(value)` builds the value on the stack and copies all of it into the box. Most of a
//! new future is unwritten space for its later states, so that this copies kilobytes for nothing.

use std::pin::Pin;

/// Boxes the value that `make` returns without copying it.
#[inline]
pub(crate) fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), make())
}

/// Boxes and pins the future that `make` returns without copying it.
#[inline]
pub(crate) fn pinned<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(boxed(make))
}

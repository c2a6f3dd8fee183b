//! Large values that are made where they stay. `Box::new(value)` makes the value on the stack and copies all of it into the box; of a
//! future that is kilobytes of space that its later states need and nothing was written to.

use std::pin::Pin;

/// Boxes what `make` returns without copying it.
#[inline]
pub(crate) fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), make())
}

/// Boxes and pins the future that `make` returns without copying it.
#[inline]
pub(crate) fn pinned<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(boxed(make))
}

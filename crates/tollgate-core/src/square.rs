//! The model square: what it says of a model besides its prices. Which parameters a model takes, and whether it can be used now.

mod parameters;
mod state;

pub use parameters::{ParameterSupport, ParameterTables};
pub use state::{AccountStanding, OfferCondition, OfferState};

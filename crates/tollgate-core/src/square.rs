//! Facts of the model square about a model besides its prices: its parameters, and whether it can be used now.

mod parameters;
mod state;

pub use parameters::{ParameterSupport, ParameterTables};
pub use state::{AccountStanding, OfferCondition, OfferState};

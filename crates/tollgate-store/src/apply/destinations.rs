//! Changes of the destinations of alerts.

use super::{Batch, SecretInput, checked, refused};
use crate::{
    ChangeRefusal, DestinationSecrets, FieldProblem, MAX_ALERT_DESTINATIONS, RowKind, StoreError,
    fields::{DestinationInput, check_row},
};

const KIND: RowKind = RowKind::AlertDestination;

impl Batch<'_> {
    pub(super) async fn put_destination(&mut self, input: &DestinationInput) -> Result<(), StoreError> {
        let DestinationInput { spec, url, secret } = input;
        let name = spec.name.as_str();
        checked(KIND, name, check_row(input))?;
        let invalid = |field, message: &str| {
            let problem = FieldProblem { field, message: message.to_owned() };
            Err(refused(KIND, name, ChangeRefusal::Invalid(vec![problem])))
        };
        let existing = self.rows.by_name(KIND, "", name).await?;
        if existing.is_none() && self.rows.list(KIND, None).await?.len() >= MAX_ALERT_DESTINATIONS {
            return invalid("name", "there are 100 destinations, which is the most");
        }
        let mut secrets = match &existing {
            Some(row) => DestinationSecrets::open(row, self.sealer)?,
            None => DestinationSecrets::default(),
        };
        if let Some(url) = url {
            url.expose().clone_into(&mut secrets.url);
        }
        if let Some(secret) = secret {
            secrets.secret = Some(secret.expose().to_owned()).filter(|text| !text.is_empty());
        }
        if secrets.url.is_empty() {
            return invalid("url", "is needed");
        }
        let mut spec = spec.clone();
        spec.has_secret = secrets.secret.is_some();
        let name = spec.name.clone();
        self.put(KIND, "", &name, &spec, SecretInput::Credential(&secrets.to_secret())).await
    }
}

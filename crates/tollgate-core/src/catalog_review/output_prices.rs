//! Prices without a figure for output, which is then free.

use crate::{Catalog, Channel, ModelSpec, Price, PriceSchedule};

/// The warning about a sale price without a figure for output. Models for embeddings have no output.
#[must_use]
pub fn output_price_warning(model: &ModelSpec) -> Option<String> {
    let leaves_out = !model.embeddings && model.price.as_ref().is_some_and(leaves_out_output);
    leaves_out.then(|| {
        format!(
            "model '{}': its price has no output, so output is sold for nothing; add output, or output = \"0\" if that is meant",
            model.name
        )
    })
}

/// Warns about a channel's costs without a figure for output.
pub(super) fn channel_warnings(catalog: &Catalog, channel: &Channel, warnings: &mut Vec<String>) {
    let embeds = |name: &str| catalog.models.get(name).is_some_and(|model| model.spec.embeddings);
    for mapping in &channel.spec.serves {
        if mapping.cost.as_ref().is_some_and(leaves_out_output) && !embeds(&mapping.model) {
            warnings.push(format!(
                "channel '{}': the cost of '{}' has no output, so output counts as free; add output, or output = \"0\" if that is meant",
                channel.spec.name, mapping.model
            ));
        }
    }
}

fn leaves_out_output(schedule: &PriceSchedule) -> bool {
    // Tiers inherit missing figures from the base price.
    schedule.0.iter().any(|entry| sells_input_only(&entry.price))
}

/// Whether a price charges for input, and has a figure neither for output nor for the whole request.
fn sells_input_only(price: &Price) -> bool {
    let Price { input, output, image, output_media, per_request, .. } = price;
    input.is_some_and(|input| input > 0) && [output, image, output_media, per_request].into_iter().all(Option::is_none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        catalog_review::catalog_warnings,
        samples::{NOW, always, catalog, channel, group, model},
    };

    fn price(change: impl FnOnce(&mut Price)) -> PriceSchedule {
        let mut price = Price { input: Some(300_000_000), ..Price::default() };
        change(&mut price);
        always(price)
    }

    #[test]
    fn price_without_output_is_warned_about() {
        let spec = |price, embeddings| ModelSpec { price, embeddings, ..model("m").spec };
        assert!(output_price_warning(&spec(Some(price(|_| {})), false)).is_some_and(|warning| warning.starts_with("model 'm'")));
        for meant in [
            Some(price(|price| price.output = Some(0))),
            Some(price(|price| price.per_request = Some(1))),
            Some(price(|price| price.image = Some(1))),
            Some(price(|price| price.input = Some(0))),
            None,
        ] {
            assert_eq!(output_price_warning(&spec(meant.clone(), false)), None, "{meant:?}");
        }
        assert_eq!(output_price_warning(&spec(Some(price(|_| {})), true)), None, "embeddings have no output");
    }

    #[test]
    fn catalog_warnings_name_sale_and_cost_prices_without_output() {
        let mut served = channel("c", &["m"]);
        served.spec.serves[0].cost = Some(price(|_| {}));
        let mut sold = model("m");
        sold.spec.price = Some(price(|_| {}));
        let found = |served: &Channel, sold: &crate::Model| {
            let catalog = catalog(vec![served.clone()], vec![group("default", &["c"])], vec![sold.clone()]);
            let warnings = catalog_warnings(&catalog, &[], NOW);
            warnings.into_iter().filter(|warning| warning.contains("has no output")).collect::<Vec<_>>()
        };
        let warnings = found(&served, &sold);
        assert!(warnings.len() == 2 && warnings[0].contains("channel 'c'") && warnings[1].contains("model 'm'"), "{warnings:?}");
        sold.spec.embeddings = true;
        assert_eq!(found(&served, &sold), Vec::<String>::new());
    }
}

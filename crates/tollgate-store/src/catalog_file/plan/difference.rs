//! What differs between two rows, in the file's words.

use std::collections::HashSet;

use crate::{ChannelSpec, catalog_file::render::FileForm};

/// The fields that differ, in the file's words.
pub(super) fn differences<T: FileForm>(old: &T, new: &T) -> Vec<String> {
    let (old, new) = (old.fields(), new.fields());
    let value = |fields: &[(&'static str, String)], name: &str| {
        fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value.clone())
    };
    let shown = |value: Option<String>| value.map_or_else(|| "default".to_owned(), |value| short(&value));
    let mut seen = HashSet::new();
    let mut details = Vec::new();
    for (name, _) in new.iter().chain(&old).filter(|(name, _)| seen.insert(*name)) {
        let (before, after) = (value(&old, name), value(&new, name));
        if before != after {
            details.push(format!("{name} {} -> {}", shown(before), shown(after)));
        }
    }
    details
}

pub(super) fn served_differences(old: &ChannelSpec, new: &ChannelSpec) -> Vec<String> {
    let find = |spec: &ChannelSpec, model: &str| spec.serves.iter().find(|serves| serves.model == model).cloned();
    let mut details = Vec::new();
    for serves in &new.serves {
        match find(old, &serves.model) {
            None => details.push(format!("serves {} (new)", serves.model)),
            Some(before) if before != *serves => {
                details.push(format!("serves {} ({})", serves.model, differences(&before, serves).join(", ")));
            }
            Some(_) => {}
        }
    }
    let gone = old.serves.iter().filter(|serves| find(new, &serves.model).is_none());
    details.extend(gone.map(|serves| format!("no longer serves {}", serves.model)));
    details
}

/// A value short enough for a line.
fn short(value: &str) -> String {
    const LONGEST: usize = 60;
    match value.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &value[..cut]),
        None => value.to_owned(),
    }
}

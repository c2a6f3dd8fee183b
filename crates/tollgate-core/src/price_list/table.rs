//! Price lists as CSV: a header with the names of columns, a row for each model, and a further row with `above` for each tier. Lines
//! that begin with `#` are comments; `# source: …` names where the prices come from.

use std::collections::HashMap;

use super::{
    ListedPrice, MAX_FAULTS, MAX_PRICE_LIST_ROWS, MAX_PRICE_LIST_TIERS, PriceList, PriceListFault,
    figures::{FIGURES, Figure, figure},
    too_many_rows,
};
use crate::{Multiplier, NanoUsd, Price, PriceTier, parse_usd};

const SOURCE: &str = "source:";

/// A column of the table.
#[derive(Clone, Copy, Debug)]
enum Column {
    Model,
    Provider,
    /// Bound of a tier, in tokens.
    Above,
    Figure(Figure),
    Priority,
    Flex,
    /// A note about charges that the price does not include.
    Note,
}

impl Column {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "model" => Self::Model,
            "provider" => Self::Provider,
            "above" => Self::Above,
            "priority" => Self::Priority,
            "flex" => Self::Flex,
            "note" => Self::Note,
            _ => Self::Figure(figure(name)?),
        })
    }
}

/// A row of the table.
#[derive(Default)]
struct CsvRow {
    model: String,
    provider: Option<String>,
    above: Option<u64>,
    price: Price,
    note: Option<String>,
}

pub(super) fn read(text: &str) -> Result<PriceList, Vec<PriceListFault>> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    let columns = header(text, &mut reader)?;
    let mut list = PriceList { about: comments(text), ..PriceList::default() };
    if let Some(at) = list.about.iter().position(|line| line.starts_with(SOURCE)) {
        list.about.remove(at)[SOURCE.len()..].trim().clone_into(&mut list.source);
    }
    let (mut known, mut faults) = (HashMap::new(), Vec::new());
    for (count, record) in reader.records().enumerate() {
        if count >= MAX_PRICE_LIST_ROWS {
            return Err(vec![too_many_rows()]);
        }
        if faults.len() >= MAX_FAULTS {
            break;
        }
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                let line = line_of(text, error.position());
                faults.push(PriceListFault { line, column: 1, message: format!("the line cannot be read: {error}") });
                break;
            }
        };
        let added = read_row(&columns, &record).and_then(|row| add(&mut list, &mut known, row));
        if let Err((column, message)) = added {
            faults.push(PriceListFault { line: line_of(text, record.position()), column, message });
        }
    }
    if faults.is_empty() { Ok(list) } else { Err(faults) }
}

/// The line in which a record begins. Its position is the end of the previous record: the rest of a CRLF, empty lines and comments may
/// lie between.
fn line_of(text: &str, position: Option<&csv::Position>) -> u64 {
    let begin = position.and_then(|at| usize::try_from(at.byte()).ok()).unwrap_or(0).min(text.len());
    let bytes = text.as_bytes();
    let mut at = begin;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\r' | b'\n' => at += 1,
            b'#' => at += bytes[at..].iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len() - at),
            _ => break,
        }
    }
    let is_end = |at: usize| bytes[at] == b'\n' || bytes[at] == b'\r' && bytes.get(at + 1) != Some(&b'\n');
    u64::try_from((0..at).filter(|at| is_end(*at)).count()).map_or(u64::MAX, |ends| ends + 1)
}

fn header(text: &str, reader: &mut csv::Reader<&[u8]>) -> Result<Vec<Column>, Vec<PriceListFault>> {
    let at = |line: u64, column: u64, message: String| vec![PriceListFault { line, column, message }];
    let names = reader.headers().map_err(|error| at(1, 1, format!("the header cannot be read: {error}")))?.clone();
    let line = line_of(text, names.position());
    let mut columns = Vec::new();
    for (number, name) in (1..).zip(names.iter()) {
        let column = Column::named(name).ok_or_else(|| {
            let known: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
            let message =
                format!("'{name}' is not a column; known are model, provider, above, priority, flex, note, {}", known.join(", "));
            at(line, number, message)
        })?;
        if names.iter().filter(|other| *other == name).count() > 1 {
            return Err(at(line, number, format!("the column '{name}' occurs twice")));
        }
        columns.push(column);
    }
    if columns.iter().any(|column| matches!(column, Column::Model)) {
        return Ok(columns);
    }
    Err(at(line, 1, "the first line must name the columns, among them 'model', such as model,input,output".to_owned()))
}

/// The comment lines without their `#`.
fn comments(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim().to_owned()).collect()
}

/// Reads a row. The error is a column and its fault.
fn read_row(columns: &[Column], record: &csv::StringRecord) -> Result<CsvRow, (u64, String)> {
    if record.len() != columns.len() {
        let (has, wants) = (record.len(), columns.len());
        let fields = if has == 1 { "field" } else { "fields" };
        return Err((has.min(wants) as u64 + 1, format!("the line has {has} {fields} and the header {wants}")));
    }
    let mut row = CsvRow::default();
    for ((number, column), text) in (1..).zip(columns).zip(record) {
        let wrong = |message: String| (number, message);
        match column {
            Column::Model if text.is_empty() || text.len() > 256 => {
                return Err(wrong("a model name has 1 to 256 bytes".to_owned()));
            }
            Column::Model => text.clone_into(&mut row.model),
            _ if text.is_empty() => {}
            Column::Provider => row.provider = Some(text.to_owned()),
            Column::Above => {
                let above = text.parse().map_err(|_| wrong(format!("above: '{text}' is not a number of tokens")))?;
                row.above = Some(above);
            }
            Column::Figure(figure) => {
                let price = parse_usd(text).map_err(|error| wrong(format!("{}: {error}", figure.name)))?;
                if price > figure.max {
                    return Err(wrong(format!("{}: {text} is above {} USD", figure.name, NanoUsd(figure.max).to_decimal())));
                }
                (figure.set)(&mut row.price, price);
            }
            Column::Priority => row.price.priority = Some(factor("priority", text).map_err(wrong)?),
            Column::Note => row.note = Some(text.to_owned()),
            Column::Flex => row.price.flex = Some(factor("flex", text).map_err(wrong)?),
        }
    }
    if FIGURES.iter().all(|figure| (figure.get)(&row.price).is_none()) {
        return Err((1, format!("'{}' has no price", row.model)));
    }
    Ok(row)
}

fn factor(name: &str, text: &str) -> Result<Multiplier, String> {
    Multiplier::parse(text).map_err(|error| format!("{name}: {error}"))
}

/// Adds a row: an entry, or a tier of the entry of its model.
fn add(list: &mut PriceList, known: &mut HashMap<(Option<String>, String), usize>, row: CsvRow) -> Result<(), (u64, String)> {
    let CsvRow { model, provider, above, price, note } = row;
    let key = (provider.clone(), model.clone());
    let Some(above) = above else {
        if known.insert(key, list.entries.len()).is_some() {
            return Err((1, format!("'{model}' occurs twice")));
        }
        list.entries.push(ListedPrice { provider, model, price, notes: Vec::from_iter(note) });
        return Ok(());
    };
    let entry = known.get(&key).and_then(|at| list.entries.get_mut(*at));
    let entry = entry.ok_or_else(|| (1, format!("a tier of '{model}' comes before its line without 'above'")))?;
    let tiers = &mut entry.price.tiers;
    if price.priority.is_some() || price.flex.is_some() {
        return Err((1, "a tier cannot have factors; leave priority and flex empty".to_owned()));
    }
    if tiers.last().is_some_and(|last| last.above >= above) {
        return Err((1, format!("tiers of '{model}' must be in ascending order of 'above'")));
    }
    if tiers.len() >= MAX_PRICE_LIST_TIERS {
        return Err((1, format!("'{model}' has more than {MAX_PRICE_LIST_TIERS} tiers")));
    }
    tiers.push(PriceTier { above, price });
    Ok(())
}

/// Writes a list as CSV. Reading it back gives the same list without the skipped entries; several notes of an entry are joined into one.
///
/// # Panics
/// Never: it writes into memory.
pub fn write_csv(list: &PriceList) -> String {
    let mut text = format!("# {SOURCE} {}\n", list.source);
    for line in &list.about {
        text.push_str(format!("# {line}").trim_end());
        text.push('\n');
    }
    let mut writer = csv::Writer::from_writer(text.into_bytes());
    let names = ["model", "provider", "above"].into_iter().chain(FIGURES.iter().map(|figure| figure.name));
    write(&mut writer, names.chain(["priority", "flex", "note"]).map(str::to_owned));
    for entry in &list.entries {
        write(&mut writer, fields(entry, None, &entry.price));
        for tier in &entry.price.tiers {
            write(&mut writer, fields(entry, Some(tier.above), &tier.price));
        }
    }
    let bytes = writer.into_inner().expect("writing to a Vec cannot fail");
    String::from_utf8(bytes).expect("the fields are texts")
}

fn write(writer: &mut csv::Writer<Vec<u8>>, fields: impl Iterator<Item = String>) {
    writer.write_record(fields.collect::<Vec<_>>()).expect("writing to a Vec cannot fail");
}

fn fields<'a>(entry: &'a ListedPrice, above: Option<u64>, price: &'a Price) -> impl Iterator<Item = String> + 'a {
    let names =
        [entry.model.clone(), entry.provider.clone().unwrap_or_default(), above.map_or_else(String::new, |it| it.to_string())];
    let figures = FIGURES.iter().map(|figure| (figure.get)(price).map_or_else(String::new, |figure| NanoUsd(figure).to_decimal()));
    let factors = [price.priority, price.flex].map(|factor| factor.map_or_else(String::new, Multiplier::to_decimal));
    let note = if above.is_none() { entry.notes.join("; ") } else { String::new() };
    names.into_iter().chain(figures).chain(factors).chain([note])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        read(text).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rows_with_an_above_value_become_tiers() {
        let text = "# source: our contract of 2026\n# negotiated\nmodel,provider,above,input,output,priority\n\
                    a,openai,,1.25,10,2\na,openai,200000,2.5,,\nb,,,0,0,\n";
        let list = read(text).unwrap();
        assert_eq!((list.source.as_str(), list.about.as_slice()), ("our contract of 2026", &["negotiated".to_owned()][..]));
        let a = &list.entries[0];
        assert_eq!(
            (a.price.input, a.price.output, a.price.priority),
            (Some(1_250_000_000), Some(10_000_000_000), Some(Multiplier(2_000_000)))
        );
        assert_eq!((a.price.tiers[0].above, a.price.tiers[0].price.input), (200_000, Some(2_500_000_000)));
        assert!(list.entries[1].price.is_free() && list.entries[1].provider.is_none());
    }

    #[test]
    fn faults_name_line_and_column() {
        assert_eq!(
            faults("model,input\na,1\nb,cheap\nc,-1\n,1\n"),
            [
                "3:2: input: not a decimal amount with at most 9 decimals: 'cheap'",
                "4:2: input: not a decimal amount with at most 9 decimals: '-1'",
                "5:1: a model name has 1 to 256 bytes",
            ]
        );
        assert_eq!(faults("model,input\na,1,2\n"), ["2:3: the line has 3 fields and the header 2"]);
        assert_eq!(faults("model,input\na\n"), ["2:2: the line has 1 field and the header 2"]);
        assert_eq!(faults("model,input\na,1000000\n"), ["2:2: input: 1000000 is above 100000 USD"]);
        assert!(faults("model,inptu\na,1\n")[0].starts_with("1:2: 'inptu' is not a column"));
        assert_eq!(faults("model,input,input\n"), ["1:2: the column 'input' occurs twice"]);
        assert!(faults("name,input\n")[0].contains("is not a column"));
        assert!(faults("input,output\n1,2\n")[0].contains("must name the columns"));
        assert_eq!(faults("model,input\na,\n"), ["2:1: 'a' has no price"]);
        assert_eq!(faults("model,input\na,1\na,2\n"), ["3:1: 'a' occurs twice"]);
        assert!(faults("model,above,input\na,5,1\n")[0].contains("before its line"));
        assert!(faults("model,above,input\na,,1\na,5,1\na,5,1\n")[0].starts_with("4:1: tiers"));
        assert!(faults("model,above,input,flex\na,,1,\na,5,1,0.5\n")[0].contains("factors"));
    }

    #[test]
    fn lines_are_counted_as_an_editor_counts_them() {
        for text in [
            "model,input\n# sold\n\na,1\nb,cheap\n\nc,-1\n",
            "# source: mine\nmodel,input\na,1\n# b\nb,cheap\n# c\nc,-1",
            "model,input,note\na,1,\"two\nlines\"\nb,cheap,\n\n\nc,-1,\n",
        ] {
            let line_numbers = |text: &str| read(text).unwrap_err().iter().map(|fault| fault.line).collect::<Vec<_>>();
            let expected: Vec<u64> =
                (1..).zip(text.lines()).filter(|(_, it)| it.starts_with(['b', 'c'])).map(|(at, _)| at).collect();
            for end in ["\n", "\r\n"] {
                assert_eq!(line_numbers(&text.replace('\n', end)), expected, "{text:?} with {end:?}");
            }
        }
        assert!(faults("# source: mine\r\n\r\nmodel,inptu\r\na,1\r\n")[0].starts_with("3:2: 'inptu'"));
    }
}

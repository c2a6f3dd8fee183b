//! Usage records as a Parquet file. Records are collected into a row group, whose columns are then encoded and compressed. Besides, a
//! few kilobytes are kept for each written row group, for the footer of the file.

use std::{borrow::Cow, sync::Arc};

use parquet::{
    basic::Compression,
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type},
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};
use tollgate_core::UsageRecord;

use crate::usage_columns::{Cell, CellType, ExportColumn, ExportView};

/// Records of a row group.
pub(crate) const ROW_GROUP: usize = 32_768;
const INFALLIBLE: &str = "the columns are those of the schema, and writing to memory cannot fail";

/// The tags of a record: a map, whose names and values are columns after the others.
const TAGS: &str = "REQUIRED GROUP tags (MAP) { REPEATED GROUP key_value { REQUIRED BYTE_ARRAY key (STRING); \
     REQUIRED BYTE_ARRAY value (STRING); } }";

/// The physical and the logical type of a column.
const fn parquet_type(kind: CellType) -> (&'static str, &'static str) {
    match kind {
        CellType::Text => ("BYTE_ARRAY", " (STRING)"),
        CellType::Count => ("INT64", ""),
        CellType::Flag => ("BOOLEAN", ""),
        CellType::Time => ("INT64", " (TIMESTAMP(MICROS,true))"),
        CellType::Usd => ("INT64", " (DECIMAL(18,9))"),
    }
}

fn schema(view: ExportView) -> String {
    let column = |ExportColumn { name, kind, is_optional, .. }: &ExportColumn| {
        let (physical, logical) = parquet_type(*kind);
        format!("{} {physical} {name}{logical};", if *is_optional { "OPTIONAL" } else { "REQUIRED" })
    };
    format!("message usage {{ {} {TAGS} }}", view.columns().map(column).collect::<Vec<_>>().join(" "))
}

/// A file in progress. Its bytes are taken out as they are written.
pub(crate) struct ParquetFile {
    writer: SerializedFileWriter<Vec<u8>>,
    view: ExportView,
    rows: Vec<UsageRecord>,
}

impl ParquetFile {
    /// A file without rows.
    pub(crate) fn new(view: ExportView) -> Self {
        let schema = parse_message_type(&schema(view)).expect("the schema is valid");
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_created_by("tollgate".to_owned())
            .build();
        let writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties)).expect(INFALLIBLE);
        Self { writer, view, rows: Vec::new() }
    }

    /// Adds records. Returns true once there are enough for a row group.
    pub(crate) fn add(&mut self, records: Vec<UsageRecord>) -> bool {
        self.rows.extend(records);
        self.rows.len() >= ROW_GROUP
    }

    /// Writes the records that were added as a row group, and returns its bytes.
    pub(crate) fn write(&mut self) -> Vec<u8> {
        let rows = std::mem::take(&mut self.rows);
        if !rows.is_empty() {
            let mut group = self.writer.next_row_group().expect(INFALLIBLE);
            for column in self.view.columns() {
                write_column(&mut group, column, &rows);
            }
            write_tags(&mut group, &rows);
            group.close().expect(INFALLIBLE);
        }
        self.writer.flush().expect(INFALLIBLE);
        std::mem::take(self.writer.inner_mut())
    }

    /// Writes the remaining records and the end of the file.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let mut bytes = self.write();
        bytes.extend(self.writer.into_inner().expect(INFALLIBLE));
        bytes
    }
}

fn write_column(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, column: &ExportColumn, rows: &[UsageRecord]) {
    let cells = rows.iter().map(column.value);
    match column.kind {
        CellType::Text => write_cells::<ByteArrayType>(group, column, cells, |cell| match cell {
            Cell::Text(Cow::Borrowed(text)) => Some(ByteArray::from(text)),
            Cell::Text(Cow::Owned(text)) => Some(ByteArray::from(text.into_bytes())),
            Cell::Null | Cell::Flag(_) | Cell::Number(_) => None,
        }),
        CellType::Flag => write_cells::<BoolType>(group, column, cells, |cell| match cell {
            Cell::Flag(flag) => Some(flag),
            Cell::Null | Cell::Text(_) | Cell::Number(_) => None,
        }),
        CellType::Count | CellType::Time | CellType::Usd => write_cells::<Int64Type>(group, column, cells, |cell| match cell {
            Cell::Number(number) => Some(number),
            Cell::Null | Cell::Text(_) | Cell::Flag(_) => None,
        }),
    }
}

/// Writes the next column. A value that is missing has the definition level 0.
fn write_cells<'a, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    column: &ExportColumn,
    cells: impl Iterator<Item = Cell<'a>>,
    value: impl Fn(Cell<'a>) -> Option<T::T>,
) {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for cell in cells {
        let value = value(cell);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    let levels = column.is_optional.then_some(levels.as_slice());
    write_next::<T>(group, &values, levels, None);
}

/// Writes names and values of the tags. The first of a record has the repetition level 0; a record without any has the definition level
/// 0.
fn write_tags(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, rows: &[UsageRecord]) {
    let (mut names, mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for record in rows {
        if record.tags.is_empty() {
            defined.push(0);
            repeated.push(0);
        }
        for (at, (name, value)) in record.tags.iter().enumerate() {
            names.push(ByteArray::from(name));
            values.push(ByteArray::from(value));
            defined.push(1);
            repeated.push(i16::from(at > 0));
        }
    }
    for texts in [names, values] {
        write_next::<ByteArrayType>(group, &texts, Some(&defined), Some(&repeated));
    }
}

fn write_next<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    defined: Option<&[i16]>,
    repeated: Option<&[i16]>,
) {
    let mut column = group.next_column().expect(INFALLIBLE).expect(INFALLIBLE);
    column.typed::<T>().write_batch(values, defined, repeated).expect(INFALLIBLE);
    column.close().expect(INFALLIBLE);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::{
        file::reader::{FileReader as _, SerializedFileReader},
        record::{Field, Row},
    };
    use tollgate_core::{RequestId, Tags, Timestamp};

    use super::*;
    use crate::usage_format::{caller_view, full_sample, sample};

    fn read(bytes: Vec<u8>) -> (usize, Vec<Row>) {
        let file = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
        (file.num_row_groups(), file.get_row_iter(None).unwrap().map(Result::unwrap).collect())
    }

    fn value(row: &Row, name: &str) -> String {
        row.get_column_iter().find(|(column, _)| *column == name).unwrap().1.to_string()
    }

    #[test]
    fn every_value_of_a_record_is_read_back() {
        let mut file = ParquetFile::new(ExportView::Operator);
        assert!(!file.add(vec![full_sample(), sample(), UsageRecord { tags: Tags::default(), ..full_sample() }]));
        let (groups, rows) = read(file.finish());
        assert_eq!((groups, rows.len()), (1, 3));
        let record = full_sample();
        for (name, expected) in [
            ("id", format!("\"{}\"", record.id)),
            ("status", "499".to_owned()),
            ("stream", "true".to_owned()),
            ("finish", "\"length\"".to_owned()),
            ("cache_write_1h", "2".to_owned()),
            ("sale", "12.000000000".to_owned()),
            ("cost", "0.000056750".to_owned()),
            ("channel", "\"spare\"".to_owned()),
            ("duration_us", i64::MAX.to_string()),
        ] {
            assert_eq!(value(&rows[0], name), expected, "{name}");
        }
        assert_eq!(value(&rows[0], "at"), Field::TimestampMicros(record.at.0).to_string());
        for name in ["sale", "model", "channel", "overhead_us", "reason"] {
            assert_eq!(value(&rows[1], name), "null", "{name}");
        }
        let tags: Vec<String> = rows.iter().map(|row| value(row, "tags")).collect();
        assert_eq!(tags, [r#"{"project" -> "web", "team" -> "a b"}"#, "{}", "{}"]);
    }

    #[test]
    fn parquet_for_members_has_no_hidden_columns() {
        let mut file = ParquetFile::new(ExportView::Member);
        file.add(vec![caller_view(full_sample())]);
        let (_, rows) = read(file.finish());
        let names: Vec<&str> = rows[0].get_column_iter().map(|(name, _)| name.as_str()).collect();
        for name in ["attempts", "channel", "account", "upstream_model", "cost", "protocol_out", "overhead_us"] {
            assert!(!names.contains(&name), "{name}");
        }
        assert_eq!((value(&rows[0], "sale"), value(&rows[0], "price_version")), ("12.000000000".to_owned(), "8".to_owned()));
    }

    #[test]
    fn file_is_written_in_row_groups() {
        let record = |number: usize| UsageRecord {
            id: RequestId::from_parts(Timestamp(i64::try_from(number).unwrap() * 1_000), [1; 10]),
            ..sample()
        };
        let (mut file, mut bytes) = (ParquetFile::new(ExportView::Operator), Vec::new());
        for begin in (0..2 * ROW_GROUP + 5).step_by(1_000) {
            if file.add((begin..(begin + 1_000).min(2 * ROW_GROUP + 5)).map(record).collect()) {
                let part = file.write();
                assert!(part.len() > 1_000 && file.rows.is_empty());
                bytes.extend(part);
            }
        }
        bytes.extend(file.finish());
        let (groups, rows) = read(bytes);
        assert_eq!((groups, rows.len()), (2, 2 * ROW_GROUP + 5));
        assert!(rows.iter().enumerate().all(|(number, row)| value(row, "id") == format!("\"{}\"", record(number).id)));
        let (groups, rows) = read(ParquetFile::new(ExportView::Operator).finish());
        assert_eq!((groups, rows.len()), (0, 0));
    }
}

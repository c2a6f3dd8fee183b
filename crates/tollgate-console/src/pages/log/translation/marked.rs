//! A JSON text line by line, with marks on the lines of some members.

use serde_json::Value;

/// A mark on a member of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineMark {
    /// Such as `generationConfig.topK` or `tools[1].strict`.
    pub(super) path: String,
    pub(super) tone: &'static str,
    /// The sign before the line, so that colour is not the only mark.
    pub(super) sign: char,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BodyLine {
    pub(super) text: String,
    /// Empty without a mark.
    pub(super) tone: &'static str,
    pub(super) sign: char,
}

/// The lines of a JSON text, each member on its own line; the lines of other texts are unchanged.
pub(super) fn marked_lines(text: &str, marks: &[LineMark]) -> Vec<BodyLine> {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => {
            let mut writer = Writer { marks, lines: Vec::new() };
            writer.write(&value, Position { path: String::new(), lead: String::new(), depth: 0, mark: None, end: "" });
            writer.lines
        }
        Err(_) => text.trim_end().lines().map(|line| BodyLine { text: line.to_owned(), tone: "", sign: ' ' }).collect(),
    }
}

struct Writer<'a> {
    marks: &'a [LineMark],
    lines: Vec<BodyLine>,
}

/// Where a value stands.
struct Position<'a> {
    path: String,
    /// The name before it.
    lead: String,
    depth: usize,
    /// The mark of an object or list that contains marked members.
    mark: Option<&'a LineMark>,
    /// What follows it on its last line.
    end: &'static str,
}

impl<'a> Writer<'a> {
    fn line(&mut self, text: &str, depth: usize, mark: Option<&LineMark>) {
        let (tone, sign) = mark.map_or(("", ' '), |mark| (mark.tone, mark.sign));
        self.lines.push(BodyLine { text: format!("{}{text}", "  ".repeat(depth)), tone, sign });
    }

    fn write(&mut self, value: &Value, position: Position<'a>) {
        let own = self.marks.iter().find(|mark| mark.path == position.path && !position.path.is_empty());
        let mark = position.mark.or(own);
        let Position { path, lead, depth, end, .. } = position;
        let inside = |path: String, lead: String, is_last: bool| Position {
            path,
            lead,
            depth: depth + 1,
            mark,
            end: if is_last { "" } else { "," },
        };
        match value {
            Value::Object(members) if !members.is_empty() => {
                self.line(&format!("{lead}{{"), depth, mark);
                for (at, (name, value)) in members.iter().enumerate() {
                    let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    let lead = format!("{}: ", Value::from(name.as_str()));
                    self.write(value, inside(below, lead, at + 1 == members.len()));
                }
                self.line(&format!("}}{end}"), depth, mark);
            }
            Value::Array(items) if !items.is_empty() => {
                self.line(&format!("{lead}["), depth, mark);
                for (at, item) in items.iter().enumerate() {
                    self.write(item, inside(format!("{path}[{at}]"), String::new(), at + 1 == items.len()));
                }
                self.line(&format!("]{end}"), depth, mark);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                self.line(&format!("{lead}{value}{end}"), depth, mark);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(path: &str) -> LineMark {
        LineMark { path: path.to_owned(), tone: "bad", sign: '−' }
    }

    fn shown(text: &str, marks: &[LineMark]) -> Vec<String> {
        marked_lines(text, marks).into_iter().map(|line| format!("{}{}", line.sign, line.text)).collect()
    }

    #[test]
    fn lines_of_a_member_and_of_what_it_contains_are_marked() {
        let text = r#"{"model":"m","stop":["a","b"],"tools":[{"name":"x","strict":true}],"e":{},"n":1}"#;
        let expected = [
            " {",
            "   \"model\": \"m\",",
            "−  \"stop\": [",
            "−    \"a\",",
            "−    \"b\"",
            "−  ],",
            "   \"tools\": [",
            "     {",
            "       \"name\": \"x\",",
            "−      \"strict\": true",
            "     }",
            "   ],",
            "   \"e\": {},",
            "   \"n\": 1",
            " }",
        ];
        assert_eq!(shown(text, &[mark("stop"), mark("tools[0].strict")]), expected);
        let plain: Vec<String> = marked_lines(text, &[]).into_iter().map(|line| line.text).collect();
        assert_eq!(plain.join("\n"), serde_json::to_string_pretty(&serde_json::from_str::<Value>(text).unwrap()).unwrap());
    }

    #[test]
    fn text_that_is_not_json_is_unchanged() {
        assert_eq!(shown("data: {}\n\ndata: [DONE]\n\n", &[mark("x")]), [" data: {}", " ", " data: [DONE]"]);
    }
}

//! Brings a conversation into the one order every protocol can carry (translation reference, section 1.10): neighbouring
//! model turns merged, results directly behind their calls and in the calls' order, every call with an id, no empty
//! turns.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Part, PartKind, Request, Role, Turn, signature};
use crate::{Malformed, Protocol};

/// Normalises the turns of a request.
///
/// # Errors
/// A call without a result although the conversation goes on, or a result that answers no call.
pub(crate) fn normalise(request: &mut Request) -> Result<(), Malformed> {
    let mut turns = merge_model_turns(std::mem::take(&mut request.turns));
    if request.origin == Protocol::Gemini {
        for turn in turns.iter_mut().filter(|turn| turn.role == Role::Model) {
            turn.parts = signature::unwrap_carried(std::mem::take(&mut turn.parts));
        }
    }
    turns = merge_model_turns(without_empty(turns));
    name_calls(&mut turns);
    request.turns = pair_results(turns, request.origin)?;
    if request.turns.is_empty() {
        let (parts, path) = match request.system.pop() {
            Some(text) => {
                let path = text.path.clone();
                (vec![text], path)
            }
            None => (vec![blank(String::new())], String::new()),
        };
        request.turns.push(Turn { role: Role::User, parts, path });
    }
    Ok(())
}

fn merge_model_turns(turns: Vec<Turn>) -> Vec<Turn> {
    let mut out: Vec<Turn> = Vec::with_capacity(turns.len());
    for turn in turns {
        match out.last_mut() {
            Some(last) if last.role == Role::Model && turn.role == Role::Model => last.parts.extend(turn.parts),
            _ => out.push(turn),
        }
    }
    out
}

fn is_empty_text(part: &Part) -> bool {
    matches!(&part.kind, PartKind::Text(text) if text.is_empty()) && part.signature.is_none()
}

fn blank(path: String) -> Part {
    Part { kind: PartKind::Text(" ".to_owned()), signature: None, path }
}

/// Drops empty texts and the turns that have nothing else; a user turn without a neighbour to stand in for it becomes one
/// blank.
fn without_empty(mut turns: Vec<Turn>) -> Vec<Turn> {
    for turn in &mut turns {
        turn.parts.retain(|part| !is_empty_text(part));
    }
    turns.retain(|turn| !turn.parts.is_empty() || turn.role == Role::User);
    let spoken = |turn: Option<&Turn>| turn.is_some_and(|turn| turn.role != Role::Model && !turn.parts.is_empty());
    let mut out: Vec<Turn> = Vec::with_capacity(turns.len());
    let mut rest = turns.into_iter().peekable();
    while let Some(mut turn) = rest.next() {
        if turn.parts.is_empty() {
            let followed = rest.peek().is_some_and(|next| next.role != Role::Model);
            if followed || spoken(out.last()) {
                continue;
            }
            turn.parts.push(blank(turn.path.clone()));
        }
        out.push(turn);
    }
    out
}

/// Gives calls without an id one: `call_<n>`, n over all of them, numbers that given ids take left out. The same history
/// always gets the same ids.
fn name_calls(turns: &mut [Turn]) {
    let given: HashSet<String> = turns
        .iter()
        .flat_map(|turn| &turn.parts)
        .filter_map(|part| if let PartKind::Call { id, .. } = &part.kind { Some(id.clone()) } else { None })
        .collect();
    let mut free = (0_u32..).map(|number| format!("call_{number}")).filter(|id| !given.contains(id));
    for part in turns.iter_mut().flat_map(|turn| &mut turn.parts) {
        if let PartKind::Call { id, .. } = &mut part.kind
            && id.is_empty()
        {
            *id = free.next().expect("numbers do not end");
        }
    }
}

/// Puts the results of each model turn directly behind it; whatever else stood in between follows.
fn pair_results(turns: Vec<Turn>, origin: Protocol) -> Result<Vec<Turn>, Malformed> {
    let mut out = Vec::with_capacity(turns.len());
    let mut rest = turns.into_iter().peekable();
    while let Some(turn) = rest.next() {
        if turn.role == Role::ToolResults {
            return Err(orphan(turn.parts.first(), origin));
        }
        if turn.role != Role::Model {
            out.push(turn);
            continue;
        }
        let (mut results, mut others) = (Vec::new(), Vec::new());
        let mut path = None;
        while let Some(next) = rest.next_if(|next| next.role != Role::Model) {
            if next.role == Role::ToolResults {
                path.get_or_insert(next.path);
                results.extend(next.parts);
            } else {
                others.push(next);
            }
        }
        let goes_on = !results.is_empty() || !others.is_empty() || rest.peek().is_some();
        if !turn.parts.iter().any(Part::is_call) && results.is_empty() || !goes_on {
            out.push(turn);
        } else {
            let parts = in_order_of_calls(&turn, results, origin)?;
            out.push(turn);
            out.push(Turn { role: Role::ToolResults, parts, path: path.unwrap_or_default() });
        }
        out.append(&mut others);
    }
    Ok(out)
}

/// The results in the order of the calls, each with the id and name of its call.
fn in_order_of_calls(turn: &Turn, results: Vec<Part>, origin: Protocol) -> Result<Vec<Part>, Malformed> {
    let calls: Vec<(&str, &str, &str)> = turn
        .parts
        .iter()
        .filter_map(|part| {
            let PartKind::Call { id, name, .. } = &part.kind else { return None };
            Some((id.as_str(), name.as_str(), part.path.as_str()))
        })
        .collect();
    let (mut by_id, mut by_name) = (HashMap::<&str, VecDeque<usize>>::new(), HashMap::<&str, VecDeque<usize>>::new());
    for (index, (id, name, _)) in calls.iter().enumerate() {
        by_id.entry(id).or_default().push_back(index);
        by_name.entry(name).or_default().push_back(index);
    }
    let mut answers: Vec<Option<Part>> = vec![None; calls.len()];
    let mut unmatched = Vec::new();
    for result in results {
        match by_id.get_mut(result_id(&result)).and_then(VecDeque::pop_front) {
            Some(index) => answers[index] = Some(result),
            None => unmatched.push(result),
        }
    }
    // By name and order, once the ids have had their say.
    for result in unmatched {
        let named = by_name.get_mut(result_name(&result));
        let open = named.and_then(|indexes| {
            while indexes.front().is_some_and(|index| answers[*index].is_some()) {
                indexes.pop_front();
            }
            indexes.pop_front()
        });
        let Some(index) = open else { return Err(orphan(Some(&result), origin)) };
        answers[index] = Some(result);
    }
    let mut ordered = Vec::with_capacity(calls.len());
    for ((id, name, path), answer) in calls.into_iter().zip(answers) {
        let mut answer = answer.ok_or_else(|| unanswered(id, path, origin))?;
        if let PartKind::Result { call_id, name: known, .. } = &mut answer.kind {
            id.clone_into(call_id);
            name.clone_into(known);
        }
        ordered.push(answer);
    }
    Ok(ordered)
}

fn result_id(part: &Part) -> &str {
    if let PartKind::Result { call_id, .. } = &part.kind { call_id } else { "" }
}

fn result_name(part: &Part) -> &str {
    if let PartKind::Result { name, .. } = &part.kind { name } else { "" }
}

fn unanswered(id: &str, path: &str, origin: Protocol) -> Malformed {
    let why = match origin {
        Protocol::Gemini => format!("functionCall '{id}' has no functionResponse"),
        Protocol::OpenAi => format!("tool call '{id}' has no result"),
        Protocol::Anthropic => format!("tool_use '{id}' has no tool_result"),
    };
    Malformed::invalid(origin, path, &why)
}

fn orphan(part: Option<&Part>, origin: Protocol) -> Malformed {
    let path = part.map_or("", |part| part.path.as_str());
    let named = part.map_or("", |part| if result_id(part).is_empty() { result_name(part) } else { result_id(part) });
    let why = match origin {
        Protocol::Gemini => format!("functionResponse '{named}' does not answer a preceding functionCall"),
        Protocol::OpenAi => format!("tool result '{named}' does not answer a preceding tool call"),
        Protocol::Anthropic => format!("tool_result '{named}' does not answer a preceding tool_use"),
    };
    Malformed::invalid(origin, path, &why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MalformedKind, neutral::Operation};

    fn text(role: Role, text: &str) -> Turn {
        let part = Part { kind: PartKind::Text(text.into()), signature: None, path: "p".into() };
        Turn { role, parts: vec![part], path: "t".into() }
    }

    fn call(id: &str, name: &str) -> Part {
        let kind = PartKind::Call { id: id.into(), name: name.into(), args: "{}".into(), custom: false };
        Part { kind, signature: None, path: format!("call {name}") }
    }

    fn result(id: &str, name: &str) -> Part {
        let kind = PartKind::Result {
            call_id: id.into(),
            name: name.into(),
            content: String::new(),
            json: false,
            media: Vec::new(),
            is_error: false,
        };
        Part { kind, signature: None, path: format!("result {id}{name}") }
    }

    fn turn(role: Role, parts: Vec<Part>) -> Turn {
        Turn { role, parts, path: "t".into() }
    }

    fn normal(turns: Vec<Turn>) -> Result<Vec<String>, Malformed> {
        let mut request = Request { turns, ..Request::new("m", Protocol::OpenAi, Operation::Generate) };
        normalise(&mut request)?;
        let tell = |part: &Part| {
            if let PartKind::Call { id, name, .. } = &part.kind {
                format!("{name}({id})")
            } else if let PartKind::Result { call_id, name, .. } = &part.kind {
                format!("{name}={call_id}")
            } else {
                part.as_text().unwrap_or("?").to_owned()
            }
        };
        Ok(request.turns.iter().map(|turn| turn.parts.iter().map(tell).collect::<Vec<_>>().join(" ")).collect())
    }

    #[test]
    fn results_follow_their_calls_and_the_rest_follows_them() {
        let turns = vec![
            turn(Role::Model, vec![call("a", "f"), call("b", "g")]),
            text(Role::System, "note"),
            turn(Role::ToolResults, vec![result("b", "")]),
            text(Role::User, "x"),
            turn(Role::ToolResults, vec![result("a", "")]),
        ];
        assert_eq!(normal(turns).unwrap(), ["f(a) g(b)", "f=a g=b", "note", "x"]);
    }

    #[test]
    fn missing_ids_are_drawn_around_given_ones() {
        let turns = vec![
            turn(Role::Model, vec![call("", "f"), call("call_0", "f"), call("", "f")]),
            turn(Role::ToolResults, vec![result("", "f"), result("call_0", ""), result("", "f")]),
        ];
        assert_eq!(normal(turns).unwrap(), ["f(call_1) f(call_0) f(call_2)", "f=call_1 f=call_0 f=call_2"]);
    }

    #[test]
    fn open_calls_at_the_end_are_fine_and_amid_the_conversation_are_not() {
        assert_eq!(normal(vec![turn(Role::Model, vec![call("a", "f")])]).unwrap(), ["f(a)"]);
        let fault = normal(vec![turn(Role::Model, vec![call("a", "f")]), text(Role::User, "x")]).unwrap_err();
        assert_eq!((fault.kind, fault.violations[0].field.as_str()), (MalformedKind::InvalidValue, "call f"));
        assert!(fault.message.contains("tool call 'a' has no result"), "{}", fault.message);
    }

    #[test]
    fn a_result_answers_once() {
        let turns = vec![turn(Role::Model, vec![call("a", "f")]), turn(Role::ToolResults, vec![result("a", ""), result("a", "")])];
        assert_eq!(normal(turns).unwrap_err().violations[0].field, "result a");
        assert!(normal(vec![turn(Role::ToolResults, vec![result("a", "")])]).is_err());
    }

    #[test]
    fn empty_turns_vanish_into_their_neighbours() {
        let turns = vec![text(Role::User, "a"), text(Role::Model, ""), text(Role::User, "")];
        assert_eq!(normal(turns).unwrap(), ["a"]);
        let turns = vec![text(Role::User, ""), text(Role::Model, "b"), text(Role::Model, "c")];
        assert_eq!(normal(turns).unwrap(), [" ", "b c"]);
        assert_eq!(normal(vec![text(Role::User, ""), text(Role::User, "")]).unwrap(), [" "]);
        assert_eq!(normal(Vec::new()).unwrap(), [" "]);
    }
}

//! Normalises a conversation to the order that every protocol accepts: adjacent model turns are merged, tool results follow
//! their calls directly and in the order of the calls, every call has an id, and there are no empty turns.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Part, PartKind, Request, Role, Turn, signature};
use crate::{Malformed, Protocol};

/// Normalises the turns. Fails for two calls of one turn with the same id, for a call without a result that further turns follow, and for
/// a result without a call.
pub(crate) fn normalise(request: &mut Request) -> Result<(), Malformed> {
    let mut turns = merge_model_turns(std::mem::take(&mut request.turns));
    if request.origin == Protocol::Gemini {
        for turn in turns.iter_mut().filter(|turn| turn.role == Role::Model) {
            turn.parts = signature::unwrap_carried(std::mem::take(&mut turn.parts));
        }
    }
    turns = merge_model_turns(remove_empty_turns(turns));
    assign_call_ids(&mut turns);
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

/// Drops empty texts and the turns that have nothing else. An empty user turn that is needed for alternation becomes a single
/// blank.
fn remove_empty_turns(mut turns: Vec<Turn>) -> Vec<Turn> {
    for turn in &mut turns {
        turn.parts.retain(|part| !is_empty_text(part));
    }
    turns.retain(|turn| !turn.parts.is_empty() || turn.role == Role::User);
    let has_input = |turn: Option<&Turn>| turn.is_some_and(|turn| turn.role != Role::Model && !turn.parts.is_empty());
    let mut out: Vec<Turn> = Vec::with_capacity(turns.len());
    let mut rest = turns.into_iter().peekable();
    while let Some(mut turn) = rest.next() {
        if turn.parts.is_empty() {
            let next_is_input = rest.peek().is_some_and(|next| next.role != Role::Model);
            if next_is_input || has_input(out.last()) {
                continue;
            }
            turn.parts.push(blank(turn.path.clone()));
        }
        out.push(turn);
    }
    out
}

/// Assigns `call_<n>` to calls without an id, skipping ids in use. The same history always gets the same ids.
fn assign_call_ids(turns: &mut [Turn]) {
    let used: HashSet<String> = turns
        .iter()
        .flat_map(|turn| &turn.parts)
        .filter_map(|part| if let PartKind::Call { id, .. } = &part.kind { Some(id.clone()) } else { None })
        .collect();
    let mut unused = (0_u32..).map(|number| format!("call_{number}")).filter(|id| !used.contains(id));
    for part in turns.iter_mut().flat_map(|turn| &mut turn.parts) {
        if let PartKind::Call { id, .. } = &mut part.kind
            && id.is_empty()
        {
            *id = unused.next().expect("fewer calls than u32 numbers");
        }
    }
}

/// Moves the results of each model turn directly after it; turns in between follow the results.
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
        check_ids(&turn, origin)?;
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
        let continues = !results.is_empty() || !others.is_empty() || rest.peek().is_some();
        if !turn.parts.iter().any(Part::is_call) && results.is_empty() || !continues {
            out.push(turn);
        } else {
            let parts = order_by_calls(&turn, results, origin)?;
            out.push(turn);
            out.push(Turn { role: Role::ToolResults, parts, path: path.unwrap_or_default() });
        }
        out.append(&mut others);
    }
    Ok(out)
}

/// Calls of one turn need different ids, because otherwise results could not be assigned to them.
fn check_ids(turn: &Turn, origin: Protocol) -> Result<(), Malformed> {
    let mut seen = HashSet::new();
    for part in &turn.parts {
        let PartKind::Call { id, .. } = &part.kind else { continue };
        if !seen.insert(id.as_str()) {
            let call = match origin {
                Protocol::Gemini => "functionCall",
                Protocol::OpenAi => "tool call",
                Protocol::Responses => "function_call",
                Protocol::Anthropic => "tool_use",
            };
            let why = format!("has the id '{id}' of another {call} before it; give each a different id");
            return Err(Malformed::invalid(origin, &part.path, &why));
        }
    }
    Ok(())
}

/// The results in the order of the calls, each with the id and name of its call.
fn order_by_calls(turn: &Turn, results: Vec<Part>, origin: Protocol) -> Result<Vec<Part>, Malformed> {
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
    // Results without a matching id are matched by name and order.
    for result in unmatched {
        let candidates = by_name.get_mut(result_name(&result));
        let next = candidates.and_then(|indexes| {
            while indexes.front().is_some_and(|index| answers[*index].is_some()) {
                indexes.pop_front();
            }
            indexes.pop_front()
        });
        let Some(index) = next else { return Err(orphan(Some(&result), origin)) };
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
        Protocol::OpenAi | Protocol::Responses => format!("tool call '{id}' has no result"),
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
        Protocol::Responses => format!("function_call_output '{named}' does not answer a preceding function_call"),
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
    fn results_follow_their_calls_before_other_turns() {
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
    fn generated_ids_skip_given_ids() {
        let turns = vec![
            turn(Role::Model, vec![call("", "f"), call("call_0", "f"), call("", "f")]),
            turn(Role::ToolResults, vec![result("", "f"), result("call_0", ""), result("", "f")]),
        ];
        assert_eq!(normal(turns).unwrap(), ["f(call_1) f(call_0) f(call_2)", "f=call_1 f=call_0 f=call_2"]);
    }

    #[test]
    fn unanswered_calls_are_allowed_only_in_the_last_turn() {
        assert_eq!(normal(vec![turn(Role::Model, vec![call("a", "f")])]).unwrap(), ["f(a)"]);
        let fault = normal(vec![turn(Role::Model, vec![call("a", "f")]), text(Role::User, "x")]).unwrap_err();
        assert_eq!((fault.kind, fault.violations[0].field.as_str()), (MalformedKind::InvalidValue, "call f"));
        assert!(fault.message.contains("tool call 'a' has no result"), "{}", fault.message);
    }

    #[test]
    fn two_calls_with_one_id_in_a_turn_are_refused() {
        let turns = vec![
            turn(Role::Model, vec![call("a", "f"), call("a", "g")]),
            turn(Role::ToolResults, vec![result("a", ""), result("a", "")]),
        ];
        let fault = normal(turns).unwrap_err();
        assert_eq!((fault.kind, fault.violations[0].field.as_str()), (MalformedKind::InvalidValue, "call g"));
        assert!(fault.message.contains("has the id 'a' of another tool call"), "{}", fault.message);
        let again = || [turn(Role::Model, vec![call("a", "f")]), turn(Role::ToolResults, vec![result("a", "")])];
        assert_eq!(normal([again(), again()].concat()).unwrap(), ["f(a)", "f=a", "f(a)", "f=a"], "in turns of their own");
    }

    #[test]
    fn second_result_for_a_call_is_refused() {
        let turns = vec![turn(Role::Model, vec![call("a", "f")]), turn(Role::ToolResults, vec![result("a", ""), result("a", "")])];
        assert_eq!(normal(turns).unwrap_err().violations[0].field, "result a");
        assert!(normal(vec![turn(Role::ToolResults, vec![result("a", "")])]).is_err());
    }

    #[test]
    fn empty_turns_are_removed() {
        let turns = vec![text(Role::User, "a"), text(Role::Model, ""), text(Role::User, "")];
        assert_eq!(normal(turns).unwrap(), ["a"]);
        let turns = vec![text(Role::User, ""), text(Role::Model, "b"), text(Role::Model, "c")];
        assert_eq!(normal(turns).unwrap(), [" ", "b c"]);
        assert_eq!(normal(vec![text(Role::User, ""), text(Role::User, "")]).unwrap(), [" "]);
        assert_eq!(normal(Vec::new()).unwrap(), [" "]);
    }
}

//! Errors of templates in the form that Helm prints.

use crate::Failure;

const WARN_START: &str = "HELM_ERR_START";
const WARN_END: &str = "HELM_ERR_END";

/// The message of `fail` and `required`, marked so that Helm's engine finds it in whatever is put around it.
pub(crate) fn marked(message: &str) -> Failure {
    Failure::error(format!("{WARN_START}{message}{WARN_END}"))
}

/// Helm's `cleanupParseError`.
pub(crate) fn of_parse(file: &str, failure: Failure) -> Failure {
    let Failure::Error(message) = failure else { return failure };
    let tokens: Vec<&str> = message.split(": ").collect();
    match tokens.as_slice() {
        [] | [_] => Failure::error(format!("parse error in ({file}): {message}")),
        [_, location, rest @ ..] => {
            let last = rest.last().unwrap_or(location);
            Failure::error(format!("parse error at ({location}): {last}"))
        }
    }
}

/// One template of a chain of calls.
#[derive(PartialEq)]
struct Trace<'m> {
    location: &'m str,
    function: String,
    message: &'m str,
}

impl Trace<'_> {
    fn shown(&self) -> String {
        let mut out = String::new();
        if !self.location.is_empty() {
            out = format!("{}\n  ", self.location);
        }
        if !self.function.is_empty() {
            out = format!("{out}{}\n    ", self.function);
        }
        if !self.message.is_empty() {
            out = format!("{out}{}\n", self.message);
        }
        out
    }
}

/// Helm's `reformatExecErrorMsg`. Go's chain of wrapped errors is read off the text, where each link begins with `template: `.
pub(crate) fn of_execution(failure: Failure) -> Failure {
    let Failure::Error(message) = &failure else { return failure };
    let mut tokens = message.splitn(3, ": ");
    let (Some(first), Some(location), Some(rest)) = (tokens.next(), tokens.next(), tokens.next()) else {
        return failure;
    };
    if first != "template" || message.starts_with("template: no template ") {
        return failure;
    }
    let warning = rest.find(WARN_START).and_then(|start| {
        let from = start.saturating_add(WARN_START.len());
        let to = rest.rfind(WARN_END).filter(|to| *to >= from)?;
        rest.get(from..to)
    });
    if let Some(warning) = warning {
        return Failure::error(format!("execution error at ({location}): {warning}"));
    }
    let mut traces: Vec<Trace<'_>> = Vec::new();
    let mut current: &str = message;
    loop {
        let Some((trace, inner)) = parse(current) else { return failure };
        if traces.last() != Some(&trace) {
            traces.push(trace);
        }
        match inner {
            Some(inner) => current = inner,
            None => break,
        }
    }
    let shown: String = traces.iter().map(Trace::shown).collect();
    Failure::error(shown.trim())
}

/// A link of the chain and the text of the error within, if it wraps one.
fn parse(text: &str) -> Option<(Trace<'_>, Option<&str>)> {
    let rest = text.strip_prefix("template: ")?;
    if rest.starts_with("no template ") {
        return Some((Trace { location: "", function: String::new(), message: text }, None));
    }
    let cut = |message: &'_ str| message.find(" template:").unwrap_or(message.len());
    if let Some((location, after)) = rest.split_once(": executing ") {
        let after = after.strip_prefix('"')?;
        let (function, after) = after.split_once('"')?;
        let (at, message) = after.strip_prefix(" at <")?.split_once(">: ")?;
        let inner = message.strip_prefix("error calling ").and_then(|called| called.split_once(": "));
        let function = format!("executing \"{function}\" at <{at}>:");
        let shown = message.get(..cut(message)).unwrap_or(message);
        return Some((Trace { location, function, message: shown }, inner.map(|(_, inner)| inner)));
    }
    let (location, message) = rest.rsplit_once(": ")?;
    let message = message.get(..cut(message)).unwrap_or(message);
    Some((Trace { location, function: String::new(), message }, None))
}

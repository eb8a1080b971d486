//! The answer as text for a terminal.

use std::fmt::Write as _;

use super::report::Report;

/// The whole answer. What is empty is left out.
pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    let verdict = if report.served { "is served" } else { "is NOT served" };
    line(&mut out, 0, &format!("IngressRequest {} {verdict}", report.request));
    line(&mut out, 1, &report.summary);
    section(
        &mut out,
        "Hosts",
        report.hosts.iter().map(|host| {
            let url = host.url.as_deref().unwrap_or("not served");
            format!("{}  {url}  ({})", host.name, host.source)
        }),
    );
    if let Some(binding) = &report.binding {
        let name = binding.name.as_deref().unwrap_or("none");
        let first = format!("{name}: {}", binding.why);
        section(
            &mut out,
            "Binding",
            [first].into_iter().chain(binding.others.iter().map(|other| format!("not {other}"))),
        );
    }
    section(&mut out, "Login", report.auth.iter().cloned());
    section(
        &mut out,
        "Routes",
        report.routes.iter().map(|route| {
            let more = if route.message.is_empty() { String::new() } else { format!(": {}", route.message) };
            format!("{} -> {}  {}{more}", route.matches, route.backends.join(", "), route.reason)
        }),
    );
    section(
        &mut out,
        "Conditions",
        report.conditions.iter().map(|condition| {
            let source = if condition.computed { " (as computed now)" } else { "" };
            format!(
                "{} {} {}{source}: {}",
                condition.type_, condition.status, condition.reason, condition.message
            )
        }),
    );
    section(
        &mut out,
        "Objects",
        report.objects.iter().map(|object| format!("{} {} {}", object.kind, object.name, object.state)),
    );
    if let Some(gateway) = &report.gateway {
        let pods = match &gateway.pods {
            None => vec!["its pods could not be read".to_owned()],
            Some(pods) if pods.is_empty() => vec!["no pod runs it".to_owned()],
            Some(pods) => pods
                .iter()
                .map(|pod| {
                    let ready = if pod.ready { "ready" } else { "not ready" };
                    format!(
                        "pod {} {} {ready}",
                        pod.name,
                        pod.address.as_deref().unwrap_or("without address")
                    )
                })
                .collect(),
        };
        let addresses = gateway.addresses.iter().map(|address| format!("reached at {address}"));
        section(&mut out, &format!("Gateway {}", gateway.name), pods.into_iter().chain(addresses));
    }
    section(&mut out, "istio-integrator", [report.operator.clone()].into_iter());
    section(
        &mut out,
        "Not seen",
        report.unseen.iter().map(|gap| format!("{}, so that {} ({})", gap.what, gap.effect, gap.error)),
    );
    section(
        &mut out,
        "Next",
        report.next_steps.iter().enumerate().map(|(position, step)| format!("{}. {step}", position + 1)),
    );
    out
}

fn section(out: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    out.push('\n');
    line(out, 0, title);
    for text in lines {
        line(out, 1, &text);
    }
}

fn line(out: &mut String, depth: usize, text: &str) {
    // A message of the API server may hold line breaks. Writing to a String cannot fail.
    let _ = writeln!(out, "{}{}", "  ".repeat(depth), text.split_whitespace().collect::<Vec<_>>().join(" "));
}

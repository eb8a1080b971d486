//! Facts about templates that the comparison with Go does not reach, or that are worth saying.

use std::rc::Rc;

use super::functions::{context, find, on_stack};
use crate::template::{MAX_ELSE, MAX_SYNTAX, Set, execute};
use crate::value::{Ctx, Value};
use crate::{Failure, Limits};

fn render_in(ctx: &mut Ctx, sources: &[(&str, &str)], data: Value) -> Result<String, Failure> {
    let mut set = Set { find, ..Set::default() };
    for (name, text) in sources {
        set.parse(name, text)?;
    }
    ctx.set = Rc::new(set);
    execute(ctx, sources[0].0, data)
}

fn render(text: &str) -> Result<String, String> {
    render_in(&mut context(), &[("t", text)], Value::Nil).map_err(|error| error.to_string())
}

fn limit(result: Result<String, Failure>) -> &'static str {
    match result {
        Err(Failure::Limit { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn empty_templates_do_not_replace_others() {
    let files = [
        ("t", "{{ template \"x\" }}"),
        ("u", "{{ define \"x\" }}one{{ end }}"),
        ("v", "{{ define \"x\" }} {{/* nothing */}} {{ end }}"),
    ];
    assert_eq!(render_in(&mut context(), &files, Value::Nil), Ok("one".to_owned()));
}

#[test]
fn a_template_that_does_not_exist_has_no_position() {
    let result = execute(&mut context(), "nope", Value::Nil);
    let message = "template: no template \"nope\" associated with template \"gotpl\"";
    assert_eq!(result, Err(Failure::error(message)));
}

#[test]
fn errors_keep_their_causes() {
    let files = [("t", "{{ include \"u\" . }}"), ("u", "\n {{ fail \"no\" }}")];
    let error = render_in(&mut context(), &files, Value::Nil).unwrap_err();
    let Failure::Exec { message, cause: Some(cause) } = error else { panic!("{error:?}") };
    let inner = "template: u:2:4: executing \"u\" at <fail \"no\">: error calling fail: no";
    let outer =
        format!("template: t:1:3: executing \"t\" at <include \"u\" .>: error calling include: {inner}");
    assert_eq!(*message, *outer);
    let Failure::Exec { message, cause } = (*cause).clone() else { panic!("{cause:?}") };
    assert_eq!((&*message, cause.as_deref()), (inner, Some(&Failure::error("no"))));
}

#[test]
fn break_within_else_leaves_the_inner_range() {
    let text = "{{ range list 1 2 }}{{ . }}{{ range list }}{{ else }}{{ break }}{{ end }}; {{ end }}";
    assert_eq!(render(text), Ok("1; 2; ".to_owned()));
}

#[test]
fn complex_constants_are_refused() {
    let message = "template: t:1: complex constants are not supported: \"1i\"";
    assert_eq!(render("{{ 1i }}"), Err(message.to_owned()));
    let message = "template: t:1: complex constants are not supported: \"1+2i\"";
    assert_eq!(render("{{ 1+2i }}"), Err(message.to_owned()));
}

#[test]
fn strings_that_are_not_utf8_are_not_given_to_functions_of_text() {
    let error = render("{{ str \"\\xff\" }}").unwrap_err();
    assert!(error.ends_with("expected string in UTF-8; got other bytes"), "{error}");
}

#[test]
fn values_have_methods() {
    let mut ctx = context();
    let files = [("t", "{{ .v.AsMap }} {{ .v.Table \"a.b\" }} {{ .v.Table \"a.x\" }}")];
    let data = {
        use crate::value::MapType;
        let c = ctx.map(MapType::Any, [("c".into(), Value::Int(1))].into()).unwrap();
        let b = ctx.map(MapType::Any, [("b".into(), Value::Map(c))].into()).unwrap();
        let a = ctx.map(MapType::Values, [("a".into(), Value::Map(b))].into()).unwrap();
        ctx.dict([("v".into(), Value::Map(a))].into()).unwrap()
    };
    let error = render_in(&mut ctx, &files, data.clone()).unwrap_err().to_string();
    assert!(error.ends_with("error calling Table: \"x\" is not a table"), "{error}");
    let files = [("t", "{{ .v.AsMap }} {{ .v.Table \"a.b\" }}")];
    let expected = "map[a:map[b:map[c:1]]] map[c:1]";
    assert_eq!(render_in(&mut ctx, &files, data), Ok(expected.to_owned()));
}

#[test]
fn syntax_nests_within_bounds() {
    on_stack(8 << 20, || {
        let depth = usize::try_from(MAX_SYNTAX).unwrap();
        let mut ctx = context();
        for (open, middle, close) in [("(", "1", ")"), ("{{ if 1 }}", "{{ 1 }}", "{{ end }}")] {
            let nested = |depth: usize| {
                let text = format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
                if open == "(" { format!("{{{{ {text} }}}}") } else { text }
            };
            assert_eq!(render(&nested(depth - 1)), Ok("1".to_owned()));
            let result = render_in(&mut ctx, &[("t", &nested(depth + 1))], Value::Nil);
            assert_eq!(limit(result), "depth of syntax");
            let result = render_in(&mut ctx, &[("t", &nested(1_000_000))], Value::Nil);
            assert_eq!(limit(result), "depth of syntax");
        }
        let chain = |count| format!("{{{{ if 0 }}}}{}{{{{ end }}}}", "{{ else if 0 }}x".repeat(count));
        assert_eq!(render(&chain(MAX_ELSE)), Ok(String::new()));
        let result = render_in(&mut ctx, &[("t", &chain(MAX_ELSE + 1))], Value::Nil);
        assert_eq!(limit(result), "length of else if");
    });
}

#[test]
fn evaluation_nests_within_bounds() {
    on_stack(8 << 20, || {
        let nest = |inner: &str| {
            format!(
                "{}{{{{ {}{inner}{} }}}}{}",
                "{{ with . }}".repeat(150),
                "(id ".repeat(40),
                ")".repeat(40),
                "{{ end }}".repeat(150)
            )
        };
        for inner in ["(include \"t\" .)", "(tpl \"{{ include `t` . }}\" .)"] {
            let result = render_in(&mut context(), &[("t", &nest(inner))], Value::Int(1));
            assert_eq!(limit(result), "depth of evaluation");
            let text = format!("{{{{ {inner} }}}}");
            let result = render_in(&mut context(), &[("t", &text)], Value::Int(1));
            assert_eq!(limit(result), "calls of templates");
        }
        let result = render_in(&mut context(), &[("t", "{{ template \"t\" }}")], Value::Nil);
        assert_eq!(limit(result), "calls of templates");
    });
}

#[test]
fn work_and_output_are_bounded() {
    let limits = Limits { steps: 10_000, bytes: 10_000, ..Limits::default() };
    let mut ctx = Ctx::new(limits.clone());
    let result = render_in(&mut ctx, &[("t", "{{ range 1000000000 }}{{ end }}")], Value::Nil);
    assert_eq!(limit(result), "steps");
    let mut ctx = Ctx::new(limits);
    let result = render_in(&mut ctx, &[("t", "{{ range 1000 }}0123456789abcdef{{ end }}")], Value::Nil);
    assert_eq!(limit(result), "bytes");
}

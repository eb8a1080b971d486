//! The parser: lists and actions. What is inside actions is in `pipeline`.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::lex::{Item, Keyword, Kind, Lexer};
use super::node::{Action, Branch, Control, Invocation, Node, Pipe, Source, Tree};
use super::text::{INVALID_SYNTAX, quote, unquote};
use super::{Find, MAX_ELSE, MAX_SYNTAX};
use crate::Failure;

/// The trees of a file, by name.
pub(super) type Trees = BTreeMap<Rc<str>, Rc<Tree>>;

/// Parses a file into its own tree and those that it defines.
pub(super) fn parse(name: &str, text: &str, find: Find) -> Result<Trees, Failure> {
    let source = Rc::new(Source { name: name.into(), text: text.into() });
    let mut parser = Parser {
        source: &source,
        lexer: Lexer::new(&source.text),
        find,
        trees: Trees::new(),
        depth: 0,
        scope: Scope::default(),
    };
    let root = parser.file()?;
    parser.add(source.name.clone(), root)?;
    Ok(parser.trees)
}

/// What is the parser's own of each tree: definitions share only the lexer with the file that they are in.
pub(super) struct Scope<'s> {
    /// Items read ahead, the latest first.
    tokens: [Item<'s>; 3],
    peeked: usize,
    /// The variables declared so far.
    pub(super) variables: Vec<Rc<str>>,
    /// The line at which the action being parsed begins, or 0.
    action_line: usize,
    range_depth: u32,
}

impl Default for Scope<'_> {
    fn default() -> Self {
        Self {
            tokens: Default::default(),
            peeked: 0,
            variables: vec!["$".into()],
            action_line: 0,
            range_depth: 0,
        }
    }
}

pub(super) struct Parser<'s> {
    source: &'s Rc<Source>,
    lexer: Lexer<'s>,
    find: Find,
    trees: Trees,
    /// How deep the syntax nests here.
    depth: u32,
    pub(super) scope: Scope<'s>,
}

/// How a list ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    End,
    Else,
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::End => "{{end}}",
            Self::Else => "{{else}}",
        })
    }
}

/// What an action turned out to be.
enum Parsed {
    Node(Node),
    Ending(Ending),
}

impl<'s> Parser<'s> {
    pub(super) fn next(&mut self) -> Item<'s> {
        let tokens = &mut self.scope.tokens;
        if self.scope.peeked > 0 {
            self.scope.peeked -= 1;
        } else {
            tokens[0] = self.lexer.next_item();
        }
        tokens.get(self.scope.peeked).cloned().unwrap_or_default()
    }

    /// Gives the latest item back.
    pub(super) fn backup(&mut self) {
        self.scope.peeked += 1;
    }

    /// Gives back an item and the latest.
    pub(super) fn backup2(&mut self, first: Item<'s>) {
        self.scope.tokens[1] = first;
        self.scope.peeked = 2;
    }

    /// Gives back two items and the latest.
    pub(super) fn backup3(&mut self, first: Item<'s>, second: Item<'s>) {
        self.scope.tokens[1] = second;
        self.scope.tokens[2] = first;
        self.scope.peeked = 3;
    }

    pub(super) fn peek(&mut self) -> Item<'s> {
        let token = self.next();
        self.backup();
        token
    }

    pub(super) fn next_non_space(&mut self) -> Item<'s> {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    pub(super) fn peek_non_space(&mut self) -> Item<'s> {
        let token = self.next_non_space();
        self.backup();
        token
    }

    pub(super) fn error(&self, message: impl std::fmt::Display) -> Failure {
        let line = self.scope.tokens[0].line;
        Failure::error(format!("template: {}:{line}: {message}", self.source.name))
    }

    pub(super) fn unexpected(&self, token: &Item<'s>, context: &str) -> Failure {
        if token.kind != Kind::Error {
            return self.error(format!("unexpected {token} in {context}"));
        }
        let line = self.scope.action_line;
        if line == 0 || line == token.line {
            return self.error(token);
        }
        let words = if token.val.ends_with(" action") { " started at" } else { " in action started at" };
        self.error(format!("{token}{words} {}:{line}", self.source.name))
    }

    fn expect_right_delim(&mut self, context: &str) -> Result<(), Failure> {
        let token = self.next_non_space();
        if token.kind == Kind::RightDelim { Ok(()) } else { Err(self.unexpected(&token, context)) }
    }

    pub(super) fn has_function(&self, name: &str) -> bool {
        super::is_of_evaluator(name) || (self.find)(name).is_some()
    }

    /// Counts a level of nesting; [`Self::ascend`] ends it.
    pub(super) fn descend(&mut self) -> Result<(), Failure> {
        self.depth += 1;
        if self.depth > MAX_SYNTAX {
            return Err(Failure::Limit { what: "depth of syntax", limit: MAX_SYNTAX.into() });
        }
        Ok(())
    }

    pub(super) fn ascend(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Adds a tree. An empty one gives way to another of its name.
    fn add(&mut self, name: Rc<str>, root: Vec<Node>) -> Result<(), Failure> {
        let tree = Tree { name: name.clone(), source: self.source.clone(), root };
        if self.trees.get(&name).is_none_or(|tree| tree.is_empty()) {
            self.trees.insert(name, Rc::new(tree));
        } else if !tree.is_empty() {
            let message = format!("template: multiple definition of template {}", quote(&name));
            return Err(self.error(message));
        }
        Ok(())
    }

    /// A list until the end of the file, in which there may be definitions.
    fn file(&mut self) -> Result<Vec<Node>, Failure> {
        let mut root = Vec::new();
        loop {
            match self.peek().kind {
                Kind::Eof => return Ok(root),
                Kind::LeftDelim => {
                    let delim = self.next();
                    if self.next_non_space().kind == Kind::Keyword(Keyword::Define) {
                        let outer = std::mem::take(&mut self.scope);
                        self.definition()?;
                        self.scope = outer;
                        continue;
                    }
                    self.backup2(delim);
                }
                _ => {}
            }
            match self.text_or_action()? {
                Parsed::Node(node) => root.push(node),
                Parsed::Ending(ending) => return Err(self.error(format!("unexpected {ending}"))),
            }
        }
    }

    fn definition(&mut self) -> Result<(), Failure> {
        const CONTEXT: &str = "define clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        self.expect_right_delim(CONTEXT)?;
        let (root, ending) = self.list()?;
        if ending == Ending::Else {
            return Err(self.error(format!("unexpected {ending} in {CONTEXT}")));
        }
        self.add(name, root)
    }

    /// A list until `end` or `else`.
    fn list(&mut self) -> Result<(Vec<Node>, Ending), Failure> {
        self.descend()?;
        let mut list = Vec::new();
        while self.peek_non_space().kind != Kind::Eof {
            match self.text_or_action()? {
                Parsed::Node(node) => list.push(node),
                Parsed::Ending(ending) => {
                    self.ascend();
                    return Ok((list, ending));
                }
            }
        }
        Err(self.error("unexpected EOF"))
    }

    fn text_or_action(&mut self) -> Result<Parsed, Failure> {
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => {
                let range = token.pos..token.pos.saturating_add(token.val.len());
                Ok(Parsed::Node(Node::Text(range)))
            }
            Kind::LeftDelim => {
                self.scope.action_line = token.line;
                let parsed = self.action()?;
                self.scope.action_line = 0;
                Ok(parsed)
            }
            _ => Err(self.unexpected(&token, "input")),
        }
    }

    /// An action, of which the left delimiter is past.
    fn action(&mut self) -> Result<Parsed, Failure> {
        let token = self.next_non_space();
        let Kind::Keyword(keyword) = token.kind else { return self.pipeline_action() };
        Ok(Parsed::Node(match keyword {
            Keyword::Block => self.block()?,
            Keyword::Break => self.leave("{{break}}", Node::Break)?,
            Keyword::Continue => self.leave("{{continue}}", Node::Continue)?,
            Keyword::Else => return self.else_action(),
            Keyword::End => {
                self.expect_right_delim("end")?;
                return Ok(Parsed::Ending(Ending::End));
            }
            Keyword::If => Node::Branch(self.control(Control::If)?),
            Keyword::Range => Node::Branch(self.control(Control::Range)?),
            Keyword::Template => self.template()?,
            Keyword::With => Node::Branch(self.control(Control::With)?),
            Keyword::Define | Keyword::Dot | Keyword::Nil => return self.pipeline_action(),
        }))
    }

    /// An action that begins with the latest item.
    fn pipeline_action(&mut self) -> Result<Parsed, Failure> {
        self.backup();
        let pos = self.peek().pos;
        let pipe = self.pipeline("command", Kind::RightDelim)?;
        Ok(Parsed::Node(Node::Action(Action { pos, pipe })))
    }

    /// `break` or `continue`.
    fn leave(&mut self, text: &str, node: Node) -> Result<Node, Failure> {
        let token = self.next_non_space();
        if token.kind != Kind::RightDelim {
            return Err(self.unexpected(&token, text));
        }
        if self.scope.range_depth == 0 {
            return Err(self.error(format!("{text} outside {{{{range}}}}")));
        }
        Ok(node)
    }

    fn else_action(&mut self) -> Result<Parsed, Failure> {
        // `else if` and `else with` are told by what comes next, which stays where it is.
        let next = self.peek_non_space().kind;
        if !matches!(next, Kind::Keyword(Keyword::If | Keyword::With)) {
            self.expect_right_delim("else")?;
        }
        Ok(Parsed::Ending(Ending::Else))
    }

    /// `if`, `with` or `range`, of which the word is past.
    ///
    /// `else if` stands for an `if` within an `else`, whose `end` is that of the whole. They are told one by one here,
    /// so that many of them do not nest the parser's calls.
    fn control(&mut self, control: Control) -> Result<Branch, Failure> {
        let mark = self.scope.variables.len();
        let mut branches: Vec<(Pipe, Vec<Node>)> = Vec::new();
        let mut last_list = None;
        let (context, again) = match control {
            Control::If => ("if", Some(Keyword::If)),
            Control::With => ("with", Some(Keyword::With)),
            Control::Range => ("range", None),
        };
        loop {
            let pipe = self.pipeline(context, Kind::RightDelim)?;
            let in_range = u32::from(control == Control::Range);
            self.scope.range_depth += in_range;
            let (list, ending) = self.list()?;
            self.scope.range_depth -= in_range;
            branches.push((pipe, list));
            if ending == Ending::End {
                break;
            }
            if again.is_some_and(|word| self.peek().kind == Kind::Keyword(word)) {
                self.next();
                if branches.len() > MAX_ELSE {
                    let limit = u64::try_from(MAX_ELSE).unwrap_or(u64::MAX);
                    return Err(Failure::Limit { what: "length of else if", limit });
                }
                continue;
            }
            let (list, ending) = self.list()?;
            if ending == Ending::Else {
                return Err(self.error(format!("expected end; found {ending}")));
            }
            last_list = Some(list);
            break;
        }
        self.scope.variables.truncate(mark);
        let mut branch = None;
        for (pipe, list) in branches.into_iter().rev() {
            let else_list = branch.map(|branch| vec![Node::Branch(branch)]).or(last_list.take());
            branch = Some(Branch { control, pos: pipe.pos, pipe, list, else_list });
        }
        branch.ok_or_else(|| self.error("missing branch"))
    }

    fn block(&mut self) -> Result<Node, Failure> {
        const CONTEXT: &str = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, Kind::RightDelim)?;
        let outer = std::mem::take(&mut self.scope);
        let (root, ending) = self.list()?;
        if ending == Ending::Else {
            self.scope = outer;
            return Err(self.error(format!("unexpected {ending} in {CONTEXT}")));
        }
        self.add(name.clone(), root)?;
        self.scope = outer;
        Ok(Node::Template(Invocation { pos: token.pos, name, pipe: Some(pipe) }))
    }

    fn template(&mut self) -> Result<Node, Failure> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let mut pipe = None;
        if self.next_non_space().kind != Kind::RightDelim {
            self.backup();
            pipe = Some(self.pipeline(CONTEXT, Kind::RightDelim)?);
        }
        Ok(Node::Template(Invocation { pos: token.pos, name, pipe }))
    }

    fn template_name(&mut self, token: &Item<'s>, context: &str) -> Result<Rc<str>, Failure> {
        if !matches!(token.kind, Kind::String | Kind::RawString) {
            return Err(self.unexpected(token, context));
        }
        let bytes = unquote(&token.val).ok_or_else(|| self.error(INVALID_SYNTAX))?;
        let name = String::from_utf8(bytes);
        name.map(Rc::from).map_err(|_| self.error("names of templates that are not UTF-8 are not supported"))
    }
}

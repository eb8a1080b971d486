//! Bounds for what a render may use up.

/// Bounds for what one render may use up, so that a hostile chart ends in an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes of templates evaluated, elements visited by functions, and values made: about the time that a render takes.
    pub steps: u64,
    /// Bytes of strings and collections made in all, also of those thrown away: about the memory.
    pub bytes: u64,
    /// How deep values, templates' syntax and YAML may nest.
    pub depth: u32,
    /// How deep `include`, `tpl` and `template` may call each other. Helm's own bound for `include` is 1,000.
    pub calls: u32,
}

impl Default for Limits {
    /// A hundred times what the largest of Istio's charts takes.
    fn default() -> Self {
        Self { steps: 200_000_000, bytes: 2 << 30, depth: 200, calls: 200 }
    }
}

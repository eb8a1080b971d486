//! Go's template language.

/// The templates of a chart, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Set {}

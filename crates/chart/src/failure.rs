//! What goes wrong while a chart is rendered.

use std::rc::Rc;

/// Why a function, or a whole render, ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// What the chart or its values are to blame for, in the words of Go or Helm where those have words for it.
    #[error("{0}")]
    Error(Rc<str>),
    /// A limit of [`crate::Limits`] was reached. Unlike an error it ends the render wherever it happens, also within
    /// functions that give their errors out as text.
    #[error("{what} exceeded the limit of {limit}")]
    Limit {
        /// What there was too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
}

impl Failure {
    /// An error with this message.
    pub(crate) fn error(message: impl AsRef<str>) -> Self {
        Self::Error(message.as_ref().into())
    }
}

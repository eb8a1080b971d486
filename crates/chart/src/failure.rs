//! What goes wrong while a chart is rendered.

use std::rc::Rc;

/// Why a function, or a whole render, ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// What the chart or its values are to blame for, in the words of Go or Helm where those have words for it.
    #[error("{0}")]
    Error(Rc<str>),
    /// An error with where in a template it happened, or anything else around another error.
    #[error("{message}")]
    Exec {
        /// The whole message, which that of the cause is a part of.
        message: Rc<str>,
        /// What Go's `errors.Unwrap` gives.
        cause: Option<Rc<Failure>>,
    },
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

    /// An error around another.
    pub(crate) fn exec(message: impl AsRef<str>, cause: Option<Failure>) -> Self {
        Self::Exec { message: message.as_ref().into(), cause: cause.map(Rc::new) }
    }
}

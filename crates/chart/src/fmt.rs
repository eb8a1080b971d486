//! Go's `fmt` for [`Value`].

use crate::Failure;
use crate::value::{Ctx, Value};

/// What `fmt.Sprint` prints of one value, which is what `{{ value }}` prints. Nil is `<nil>`.
pub(crate) fn display(_ctx: &mut Ctx, _value: &Value) -> Result<String, Failure> {
    Ok(String::new())
}

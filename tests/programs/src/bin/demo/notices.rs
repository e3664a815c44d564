//! Takes the notices from their queue, as the business application would, and shows them.

use std::cell::RefCell;

use end_to_end::outsider::Outsider;
use serde_json::Value;

use crate::{
    environment::Environment,
    failure::{Checked, soon},
    page::say,
};

/// Takes notices until those of this demonstration have come: three registrations and a drop.
pub(crate) async fn show(environment: &Environment, upstream: &Outsider) -> Checked {
    let expected = ["webhook.created", "webhook.created", "webhook.created", "webhook.dropping"];
    let queue = environment.names().notices();
    let taken = RefCell::new(Vec::<Value>::new());
    soon("the notices", &expected.map(str::to_owned).to_vec(), || async {
        while let Some(message) = upstream.take(&queue).await {
            taken.borrow_mut().push(serde_json::from_slice(&message.data).unwrap_or_default());
        }
        let mut types: Vec<_> = taken.borrow().iter().map(|notice| text(notice, "type")).collect();
        types.sort();
        types
    })
    .await?;
    for notice in taken.take() {
        say!("  {:<16}  {}", text(&notice, "type"), text(&notice, "summary"));
    }
    Ok(())
}

fn text(notice: &Value, member: &str) -> String {
    notice[member].as_str().unwrap_or("?").to_owned()
}

//! Repairs what lapin reads. RabbitMQ checks neither the bytes of short strings nor the depth of header tables. lapin
//! expects UTF-8 in short strings, such as a message id or a header's name, and reads tables by recursion: without the
//! repair, one message would end the connection of each consumer that receives the message, or the process.
//!
//! The repair changes bytes in place. The number of bytes and each body stay as they are.

mod frames;
mod payload;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use stream::{RepairedStream, runtime};

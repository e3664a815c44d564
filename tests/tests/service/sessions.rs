//! Who calls: the two back ends of sessions, and how often a session may call.
mod application;
mod database;
mod introspection;
mod pace;

//! The pure core: ids, messages, schedule, outcomes and policies; no IO, no clock

//! A queue with a limit.

use std::collections::VecDeque;

pub struct Queue<'a, T> {
    name: &'a str,
    waiting: VecDeque<T>,
    limit: usize,
}

impl<'a, T: Clone> Queue<'a, T> {
    pub fn new(name: &'a str, limit: usize) -> Self {
        Queue { name, waiting: VecDeque::new(), limit }
    }

    /// Puts an item at the end; `Err(item)` if the queue is full.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.waiting.len() == self.limit {
            return Err(item);
        }
        self.waiting.push_back(item);
        Ok(())
    }

    pub fn first(&self) -> Option<&T> {
        match self.waiting.front() {
            Some(item) => Some(item),
            None => {
                println!("{} is empty ({} waiting)", self.name, 0);
                None
            }
        }
    }
}

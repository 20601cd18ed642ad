"""Who said yes to what: requests that outlive their askers, and answers that count only from who is entitled."""

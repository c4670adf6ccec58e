import { useState } from 'react';

export function Counter({ first = 0, label }) {
  const [count, setCount] = useState(first);
  // Don't count below zero (it's a shop).
  return (
    <section className="counter">
      <h2>{label}</h2>
      <p>You can't have {count} of them</p>
      <button onClick={() => setCount(Math.max(0, count - 1))}>less</button>
      <button onClick={() => setCount(count + 1)}>more</button>
      {count > 9 && (
        <ul>
          {['a', 'b'].map((name) => (
            <li key={name}>{name.toUpperCase()}</li>
          ))}
        </ul>
      )}
    </section>
  );
}

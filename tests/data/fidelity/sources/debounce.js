'use strict';

/**
 * Calls `fn` once the calls have stopped (after `wait` ms).
 */
function debounce(fn, wait = 100) {
  let timer = null;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => fn(...args), wait);
  };
}

const shout = debounce((text) => {
  console.log(text.replace(/^[^)]*\)$/, "it's") + '!');
}, 250);

switch (process.argv[2]) {
  case 'shout':
    shout(process.argv.slice(3).join(' '));
    break;
  default:
    console.error('usage: debounce shout TEXT');
}

module.exports = { debounce, shout };

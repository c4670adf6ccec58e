// Files that the build takes in as text.

declare module "*.txt" {
  const text: string;
  export default text;
}
